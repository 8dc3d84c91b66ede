import { NextResponse } from "next/server";

import { currentSession } from "@/lib/auth/session";

export const dynamic = "force-dynamic";

/** What client components may know of the session: never a token. */
export async function GET(): Promise<NextResponse> {
  const session = await currentSession();
  const user = session && { name: session.name, email: session.email, roles: session.roles };
  return NextResponse.json({ user }, { headers: { "Cache-Control": "private, no-store" } });
}
