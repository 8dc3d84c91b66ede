import { timingSafeEqual } from "node:crypto";
import { type NextRequest, NextResponse } from "next/server";

import { setSession, take } from "@/lib/auth/cookies";
import { exchange, OAuthError } from "@/lib/auth/oauth-client";
import { seal, SESSION_SECONDS } from "@/lib/auth/session";
import { verifyIdToken } from "@/lib/auth/tokens";
import { localPath } from "@/lib/paths";

export const dynamic = "force-dynamic";

function same(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}

function failed(request: NextRequest, reason: string): NextResponse {
  const address = new URL("/login", request.nextUrl.origin);
  address.searchParams.set("error", reason);
  return NextResponse.redirect(address);
}

/** The provider sends the browser here with a code, or with the reason why there is none. */
export async function GET(request: NextRequest): Promise<NextResponse> {
  const given = request.nextUrl.searchParams;
  const verifier = await take("pkce_verifier");
  const state = await take("oauth_state");
  const nonce = await take("oauth_nonce");
  const returnTo = localPath((await take("return_to")) ?? null);

  if (given.has("error")) return failed(request, given.get("error")!);
  const code = given.get("code");
  if (!code || !verifier || !state || !nonce) return failed(request, "login_expired");
  if (!same(given.get("state") ?? "", state)) return failed(request, "state_mismatch");

  try {
    const tokens = await exchange(code, verifier);
    const claims = await verifyIdToken(tokens.id_token ?? "", nonce);
    const sealed = await seal({
      subject: claims.sub,
      name: claims.name ?? claims.sub,
      email: claims.email ?? "",
      roles: claims.roles ?? [],
      accessToken: tokens.access_token,
      accessExpires: Math.floor(Date.now() / 1000) + tokens.expires_in,
      refreshToken: tokens.refresh_token,
    });
    await setSession(sealed, SESSION_SECONDS);
  } catch (error) {
    if (!(error instanceof OAuthError)) throw error;
    return failed(request, error.temporary ? "provider_unavailable" : error.code);
  }
  return NextResponse.redirect(new URL(returnTo, request.nextUrl.origin));
}
