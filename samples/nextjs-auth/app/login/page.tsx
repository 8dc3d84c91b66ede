import { SignInButton } from "@/components/sign-in-button";
import { localPath } from "@/lib/paths";

const REASONS: Record<string, string> = {
  access_denied: "You did not agree to the sign-in.",
  login_expired: "The sign-in took longer than ten minutes. Please start again.",
  provider_unavailable: "The identity provider does not answer. Please try again in a minute.",
  state_mismatch: "The answer belongs to another sign-in. Please start again in this tab.",
};

interface Props {
  searchParams: Promise<{ error?: string; returnTo?: string }>;
}

export default async function LoginPage({ searchParams }: Props) {
  const { error, returnTo } = await searchParams;
  return (
    <main>
      <h1>Sign in</h1>
      {error && <p role="alert">{REASONS[error] ?? "The sign-in failed."}</p>}
      <SignInButton returnTo={localPath(returnTo ?? null)} />
    </main>
  );
}
