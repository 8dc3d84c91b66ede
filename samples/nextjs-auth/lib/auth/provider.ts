import "server-only";

export interface Provider {
  id: string;
  issuer: string;
  clientId: string;
  clientSecret?: string;
  scopes: readonly string[];
}

function required(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: see guides/environment.md`);
  return value;
}

/** Public clients have no secret: they rely on PKCE alone. */
export function provider(): Provider {
  return {
    id: "company",
    issuer: required("AUTH_ISSUER"),
    clientId: required("AUTH_CLIENT_ID"),
    clientSecret: process.env.AUTH_CLIENT_SECRET,
    scopes: ["openid", "profile", "email", "offline_access"],
  };
}

/** Where the identity provider sends the browser after the consent page. */
export function callbackAddress(): string {
  return new URL("/api/auth/callback", required("NEXTAUTH_URL")).toString();
}
