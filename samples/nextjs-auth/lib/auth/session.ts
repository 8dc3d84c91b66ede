import "server-only";

import { cache } from "react";
import { cookies } from "next/headers";
import { redirect } from "next/navigation";
import { EncryptJWT, jwtDecrypt } from "jose";

import { SESSION_COOKIE } from "./cookies";

export const SESSION_SECONDS = 8 * 60 * 60;

export interface Session {
  subject: string;
  name: string;
  email: string;
  roles: string[];
  accessToken: string;
  accessExpires: number;
  refreshToken?: string;
}

function key(): Uint8Array {
  const secret = Buffer.from(process.env.SESSION_SECRET ?? "", "base64");
  if (secret.length !== 32) throw new Error("SESSION_SECRET must be 32 bytes in base64");
  return secret;
}

export function seal(session: Session): Promise<string> {
  return new EncryptJWT({ ...session })
    .setProtectedHeader({ alg: "dir", enc: "A256GCM" })
    .setIssuedAt()
    .setExpirationTime(`${SESSION_SECONDS}s`)
    .encrypt(key());
}

export async function open(sealed: string): Promise<Session | null> {
  try {
    const { payload } = await jwtDecrypt(sealed, key());
    return payload as unknown as Session;
  } catch {
    return null; // expired, from an older key, or tampered with
  }
}

/** The session of this request. `cache` makes several components of one page share the decryption. */
export const currentSession = cache(async (): Promise<Session | null> => {
  const sealed = (await cookies()).get(SESSION_COOKIE)?.value;
  return sealed ? open(sealed) : null;
});

/** For pages that need a signed-in person. Middleware alone is not enough: see guides/middleware.md. */
export async function requireSession(returnTo: string): Promise<Session> {
  const session = await currentSession();
  if (!session) redirect(`/login?returnTo=${encodeURIComponent(returnTo)}`);
  return session;
}
