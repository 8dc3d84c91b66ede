/** A plain link: the login route answers with a redirect, which `fetch` and `<Link prefetch>` must not follow. */
export function SignInButton({ returnTo }: { returnTo: string }) {
  return <a href={`/api/auth/login?returnTo=${encodeURIComponent(returnTo)}`}>Sign in</a>;
}
