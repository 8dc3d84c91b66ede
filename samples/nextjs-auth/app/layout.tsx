import type { Metadata } from "next";
import type { ReactNode } from "react";

import { SessionProvider } from "@/components/session-provider";
import { currentSession } from "@/lib/auth/session";

export const metadata: Metadata = { title: "Harbour office" };

export default async function RootLayout({ children }: { children: ReactNode }) {
  const session = await currentSession();
  const user = session && { name: session.name, email: session.email, roles: session.roles };
  return (
    <html lang="en">
      <body>
        <SessionProvider user={user}>{children}</SessionProvider>
      </body>
    </html>
  );
}
