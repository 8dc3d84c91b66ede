import { cookies } from "next/headers";

const SECURE = process.env.NODE_ENV === "production";

/** `__Host-` needs Secure, Path=/ and no Domain: a sibling subdomain cannot overwrite it. */
export const SESSION_COOKIE = SECURE ? "__Host-session" : "session";

export async function setShortLived(name: string, value: string, seconds: number): Promise<void> {
  (await cookies()).set(name, value, {
    httpOnly: true,
    secure: SECURE,
    sameSite: "lax",
    path: "/api/auth",
    maxAge: seconds,
  });
}

/** Read a cookie and delete it: it serves one request only. */
export async function take(name: string): Promise<string | undefined> {
  const jar = await cookies();
  const value = jar.get(name)?.value;
  jar.set(name, "", { path: "/api/auth", maxAge: 0 });
  return value;
}

export async function setSession(value: string, seconds: number): Promise<void> {
  (await cookies()).set(SESSION_COOKIE, value, {
    httpOnly: true,
    secure: SECURE,
    sameSite: "lax",
    path: "/",
    maxAge: seconds,
  });
}
