import { requireSession } from "@/lib/auth/session";
import { freshSession } from "@/lib/auth/tokens";

export default async function AccountPage() {
  const session = await freshSession(await requireSession("/account"));
  return (
    <main>
      <h1>{session.name}</h1>
      <dl>
        <dt>Address</dt>
        <dd>{session.email}</dd>
        <dt>Roles</dt>
        <dd>{session.roles.join(", ") || "none"}</dd>
      </dl>
    </main>
  );
}
