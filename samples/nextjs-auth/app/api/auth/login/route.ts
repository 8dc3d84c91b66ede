import { randomBytes } from "node:crypto";
import { type NextRequest, NextResponse } from "next/server";

import { setShortLived } from "@/lib/auth/cookies";
import { authorizationAddress } from "@/lib/auth/oauth-client";
import { createPkcePair, VERIFIER_COOKIE, VERIFIER_SECONDS } from "@/lib/auth/pkce";
import { localPath } from "@/lib/paths";

export const dynamic = "force-dynamic";

/** Begin a login: remember verifier, state and nonce in cookies, and send the browser to the provider. */
export async function GET(request: NextRequest): Promise<NextResponse> {
  const { verifier, challenge } = createPkcePair();
  const state = randomBytes(24).toString("base64url");
  const nonce = randomBytes(24).toString("base64url");
  const returnTo = localPath(request.nextUrl.searchParams.get("returnTo"));

  await setShortLived(VERIFIER_COOKIE, verifier, VERIFIER_SECONDS);
  await setShortLived("oauth_state", state, VERIFIER_SECONDS);
  await setShortLived("oauth_nonce", nonce, VERIFIER_SECONDS);
  await setShortLived("return_to", returnTo, VERIFIER_SECONDS);

  const address = await authorizationAddress({ state, nonce, challenge });
  return NextResponse.redirect(address);
}
