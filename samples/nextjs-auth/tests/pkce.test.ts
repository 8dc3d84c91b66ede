import { expect, test } from "vitest";

import { challengeOf, createPkcePair, createVerifier } from "@/lib/auth/pkce";

test("the challenge is that of appendix B of RFC 7636", () => {
  const verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
  expect(challengeOf(verifier)).toBe("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
});

test("a verifier has the length and the characters that the RFC allows", () => {
  for (let count = 0; count < 100; count += 1) {
    expect(createVerifier()).toMatch(/^[A-Za-z0-9_-]{43,128}$/);
  }
});

test("no two logins share a verifier", () => {
  const pairs = Array.from({ length: 50 }, createPkcePair);
  expect(new Set(pairs.map((pair) => pair.verifier)).size).toBe(50);
});
