import { NextResponse } from "next/server";

import { setSession } from "@/lib/auth/cookies";
import { revoke } from "@/lib/auth/oauth-client";
import { currentSession } from "@/lib/auth/session";

/** Only POST: a picture on another site could otherwise sign people out. */
export async function POST(): Promise<NextResponse> {
  const session = await currentSession();
  if (session?.refreshToken) await revoke(session.refreshToken);
  await setSession("", 0);
  return new NextResponse(null, { status: 303, headers: { Location: "/" } });
}
