import "server-only";

import { callbackAddress, provider } from "./provider";

/**
 * A small OAuth 2.1 client for one provider: discovery, the authorization address, the exchange of the code, refresh,
 * revocation and the end of the provider's own session. It knows nothing of Next.js.
 */

const DISCOVERY_SECONDS = 60 * 60;
const REQUEST_MS = 8_000;
const MAX_ANSWER_BYTES = 64 * 1024;

export interface Metadata {
  issuer: string;
  authorization_endpoint: string;
  token_endpoint: string;
  jwks_uri: string;
  revocation_endpoint?: string;
  end_session_endpoint?: string;
  code_challenge_methods_supported?: string[];
}

export interface TokenAnswer {
  access_token: string;
  token_type: string;
  expires_in: number;
  refresh_token?: string;
  id_token?: string;
  scope?: string;
}

export interface AuthorizationRequest {
  state: string;
  nonce: string;
  challenge: string;
  loginHint?: string;
  prompt?: "none" | "login" | "consent";
}

/** What the provider answered when it refused. `code` is the `error` of RFC 6749. */
export class OAuthError extends Error {
  constructor(
    readonly code: string,
    description: string,
    readonly status: number,
  ) {
    super(description);
    this.name = "OAuthError";
  }

  /** Whether the person has to sign in again. */
  get needsLogin(): boolean {
    return ["invalid_grant", "login_required", "interaction_required"].includes(this.code);
  }

  /** Whether the same request may succeed later. */
  get temporary(): boolean {
    return this.status >= 500 || this.code === "temporarily_unavailable";
  }
}

let known: { metadata: Metadata; until: number } | undefined;

/** The provider's metadata, kept for an hour in this process. */
export async function discover(): Promise<Metadata> {
  if (known && known.until > Date.now()) return known.metadata;
  const { issuer } = provider();
  const address = new URL("/.well-known/openid-configuration", issuer);
  const metadata = (await requested(address.toString(), {})) as Metadata;
  check(metadata, issuer);
  known = { metadata, until: Date.now() + DISCOVERY_SECONDS * 1000 };
  return metadata;
}

/**
 * A provider that answers with another issuer is a mix-up attack or a wrong setting.
 * One that does not list S256 does not support PKCE: fail at the start, not at the first login.
 */
function check(metadata: Metadata, issuer: string): void {
  if (metadata.issuer !== issuer) {
    throw new OAuthError(
      "issuer_mismatch",
      `AUTH_ISSUER is ${issuer}, but the provider calls itself ${metadata.issuer}`,
      500,
    );
  }
  const methods = metadata.code_challenge_methods_supported ?? [];
  if (!methods.includes("S256")) {
    throw new OAuthError(
      "pkce_unsupported",
      "the provider does not list S256 in code_challenge_methods_supported",
      500,
    );
  }
}

/** Where the browser is sent to sign in. */
export async function authorizationAddress(request: AuthorizationRequest): Promise<URL> {
  const { authorization_endpoint } = await discover();
  const { clientId, scopes } = provider();
  const address = new URL(authorization_endpoint);
  address.searchParams.set("response_type", "code");
  address.searchParams.set("client_id", clientId);
  address.searchParams.set("redirect_uri", callbackAddress());
  address.searchParams.set("scope", scopes.join(" "));
  address.searchParams.set("state", request.state);
  address.searchParams.set("nonce", request.nonce);
  address.searchParams.set("code_challenge", request.challenge);
  address.searchParams.set("code_challenge_method", "S256");
  if (request.loginHint) address.searchParams.set("login_hint", request.loginHint);
  if (request.prompt) address.searchParams.set("prompt", request.prompt);
  return address;
}

/** Exchange the code of the callback for tokens. The verifier proves that this server began the login. */
export async function exchange(code: string, verifier: string): Promise<TokenAnswer> {
  return token({
    grant_type: "authorization_code",
    code,
    code_verifier: verifier,
    // The very address of the authorization request: most providers compare it byte by byte.
    redirect_uri: callbackAddress(),
  });
}

/** New tokens for a refresh token. Providers that rotate answer with a new one and refuse the old one. */
export async function refresh(refreshToken: string): Promise<TokenAnswer> {
  return token({ grant_type: "refresh_token", refresh_token: refreshToken });
}

async function token(parameters: Record<string, string>): Promise<TokenAnswer> {
  const { token_endpoint } = await discover();
  const { clientId, clientSecret } = provider();
  const body = new URLSearchParams({ ...parameters, client_id: clientId });
  const headers: Record<string, string> = {
    "Content-Type": "application/x-www-form-urlencoded",
  };
  if (clientSecret) headers.Authorization = basic(clientId, clientSecret);
  const answer = await requested(token_endpoint, { method: "POST", headers, body });
  if (!isTokenAnswer(answer)) {
    throw new OAuthError("invalid_answer", "the token endpoint answered without a token", 502);
  }
  return answer;
}

/** RFC 6749 section 2.3.1: both parts are form-encoded before they are joined. */
function basic(clientId: string, clientSecret: string): string {
  const joined = `${encodeURIComponent(clientId)}:${encodeURIComponent(clientSecret)}`;
  return `Basic ${Buffer.from(joined, "utf8").toString("base64")}`;
}

function isTokenAnswer(answer: unknown): answer is TokenAnswer {
  if (typeof answer !== "object" || answer === null) return false;
  const { access_token, expires_in } = answer as Partial<TokenAnswer>;
  return typeof access_token === "string" && typeof expires_in === "number";
}

/** Tell the provider to forget a refresh token. A failure is logged and does not stop the logout. */
export async function revoke(refreshToken: string): Promise<void> {
  const { revocation_endpoint } = await discover();
  if (!revocation_endpoint) return;
  const { clientId, clientSecret } = provider();
  const headers: Record<string, string> = {};
  if (clientSecret) headers.Authorization = basic(clientId, clientSecret);
  const body = new URLSearchParams({
    token: refreshToken,
    token_type_hint: "refresh_token",
    client_id: clientId,
  });
  try {
    await requested(revocation_endpoint, { method: "POST", headers, body });
  } catch (error) {
    console.warn("revocation failed", error instanceof Error ? error.message : error);
  }
}

/** Where the browser is sent so that the provider ends its own session, too. */
export async function endSessionAddress(idToken: string, returnTo: string): Promise<URL | null> {
  const { end_session_endpoint } = await discover();
  if (!end_session_endpoint) return null;
  const address = new URL(end_session_endpoint);
  address.searchParams.set("id_token_hint", idToken);
  address.searchParams.set("post_logout_redirect_uri", returnTo);
  return address;
}

/** One request with a deadline, a bound on its answer and an error that says what the provider said. */
async function requested(address: string, options: RequestInit): Promise<unknown> {
  const response = await fetch(address, {
    ...options,
    cache: "no-store",
    redirect: "error",
    signal: AbortSignal.timeout(REQUEST_MS),
  });
  const text = await bounded(response);
  const answer = parsed(text);
  if (!response.ok) {
    const { error, error_description } = (answer ?? {}) as Record<string, string | undefined>;
    throw new OAuthError(
      error ?? "server_error",
      error_description ?? `the provider answered ${response.status}`,
      response.status,
    );
  }
  return answer;
}

async function bounded(response: Response): Promise<string> {
  const reader = response.body?.getReader();
  if (!reader) return "";
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    text += decoder.decode(value, { stream: true });
    if (text.length > MAX_ANSWER_BYTES) throw new OAuthError("too_long", "answer too long", 502);
  }
}

function parsed(text: string): unknown {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null; // an HTML error page of a proxy
  }
}
