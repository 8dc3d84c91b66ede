/** A form, since the logout route accepts only POST. It works without JavaScript. */
export function SignOutButton() {
  return (
    <form action="/api/auth/logout" method="post">
      <button type="submit">Sign out</button>
    </form>
  );
}
