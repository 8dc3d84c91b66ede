import { type NextRequest, NextResponse } from "next/server";

const SESSION_COOKIES = ["__Host-session", "session"];

/**
 * Sends people without a session cookie to the login page before anything is rendered. It does not decrypt the
 * cookie: pages and route handlers check the session themselves.
 */
export function middleware(request: NextRequest): NextResponse {
  if (SESSION_COOKIES.some((name) => request.cookies.has(name))) return NextResponse.next();
  const login = new URL("/login", request.nextUrl.origin);
  login.searchParams.set("returnTo", request.nextUrl.pathname + request.nextUrl.search);
  return NextResponse.redirect(login);
}

/** No files of the build, no images, and not the routes below /api/auth, or nobody could sign in. */
export const config = {
  matcher: ["/account/:path*", "/admin/:path*", "/api/((?!auth).*)"],
};
