import { notFound } from "next/navigation";

import { requireSession } from "@/lib/auth/session";
import { may } from "@/lib/auth/roles";

export default async function AdminPage() {
  const session = await requireSession("/admin");
  // 404 rather than 403: who may not see the page learns nothing of it.
  if (!may(session, "berths:assign")) notFound();
  return (
    <main>
      <h1>Berths</h1>
      <p>Assign a berth to each vessel that is announced for tomorrow.</p>
    </main>
  );
}
