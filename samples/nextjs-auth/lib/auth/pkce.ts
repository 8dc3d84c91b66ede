import { createHash, randomBytes } from "node:crypto";

/** The name of the short-lived cookie that carries the verifier from the login route to the callback. */
export const VERIFIER_COOKIE = "pkce_verifier";
export const VERIFIER_SECONDS = 600;

const VERIFIER_BYTES = 48;

export interface PkcePair {
  verifier: string;
  challenge: string;
  method: "S256";
}

/** A verifier of 64 URL-safe characters. RFC 7636 allows 43 to 128. */
export function createVerifier(): string {
  return randomBytes(VERIFIER_BYTES).toString("base64url");
}

/** The challenge is the SHA-256 of the verifier, in base64url without padding. */
export function challengeOf(verifier: string): string {
  return createHash("sha256").update(verifier, "ascii").digest("base64url");
}

export function createPkcePair(): PkcePair {
  const verifier = createVerifier();
  return { verifier, challenge: challengeOf(verifier), method: "S256" };
}
