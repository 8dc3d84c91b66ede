import "server-only";

import { createRemoteJWKSet, jwtVerify } from "jose";

import { discover, refresh } from "./oauth-client";
import { provider } from "./provider";
import { seal, SESSION_SECONDS, type Session } from "./session";
import { setSession } from "./cookies";

const LEEWAY_SECONDS = 60;
const running = new Map<string, Promise<Session>>();

export interface IdClaims {
  sub: string;
  name?: string;
  email?: string;
  roles?: string[];
  nonce?: string;
}

/** Check signature, issuer, audience, expiry and nonce of an id token. */
export async function verifyIdToken(token: string, nonce: string): Promise<IdClaims> {
  const { issuer, jwks_uri } = await discover();
  const keys = createRemoteJWKSet(new URL(jwks_uri));
  const { payload } = await jwtVerify(token, keys, {
    issuer,
    audience: provider().clientId,
    clockTolerance: 5,
  });
  if (payload.nonce !== nonce) throw new Error("nonce does not match");
  return payload as unknown as IdClaims;
}

/** An access token that is valid for another minute. Two requests at once share one refresh. */
export async function freshSession(session: Session): Promise<Session> {
  const now = Math.floor(Date.now() / 1000);
  if (session.accessExpires - LEEWAY_SECONDS > now || !session.refreshToken) return session;
  const known = running.get(session.refreshToken);
  if (known) return known;
  const renewed = renew(session).finally(() => running.delete(session.refreshToken!));
  running.set(session.refreshToken, renewed);
  return renewed;
}

async function renew(session: Session): Promise<Session> {
  const answer = await refresh(session.refreshToken!);
  const renewed: Session = {
    ...session,
    accessToken: answer.access_token,
    accessExpires: Math.floor(Date.now() / 1000) + answer.expires_in,
    refreshToken: answer.refresh_token ?? session.refreshToken,
  };
  await setSession(await seal(renewed), SESSION_SECONDS);
  return renewed;
}
