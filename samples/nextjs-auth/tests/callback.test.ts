import { expect, test, vi } from "vitest";
import { NextRequest } from "next/server";

const jar = new Map<string, string>();
vi.mock("@/lib/auth/cookies", () => ({
  take: async (name: string) => {
    const value = jar.get(name);
    jar.delete(name);
    return value;
  },
  setSession: vi.fn(),
}));

const { GET } = await import("@/app/api/auth/callback/route");
const callback = (query: string) => GET(new NextRequest(`http://localhost:3000/api/auth/callback?${query}`));

test("without the verifier's cookie the login has expired", async () => {
  jar.clear();
  const answer = await callback("code=c&state=s");
  expect(answer.headers.get("location")).toContain("error=login_expired");
});

test("an answer with a foreign state is refused before the code is exchanged", async () => {
  jar.set("pkce_verifier", "v").set("oauth_state", "mine").set("oauth_nonce", "n");
  const answer = await callback("code=c&state=foreign");
  expect(answer.headers.get("location")).toContain("error=state_mismatch");
});
