import { SignInButton } from "@/components/sign-in-button";
import { SignOutButton } from "@/components/sign-out-button";
import { currentSession } from "@/lib/auth/session";

export default async function Home() {
  const session = await currentSession();
  return (
    <main>
      <h1>Harbour office</h1>
      {session ? (
        <>
          <p>Signed in as {session.name}.</p>
          <SignOutButton />
        </>
      ) : (
        <SignInButton returnTo="/account" />
      )}
    </main>
  );
}
