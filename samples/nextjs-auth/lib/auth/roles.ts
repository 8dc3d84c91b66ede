import type { Session } from "./session";

const PERMISSIONS = {
  clerk: ["vessels:read"],
  pilot: ["vessels:read", "tides:read"],
  master: ["vessels:read", "tides:read", "berths:assign"],
} as const;

type Role = keyof typeof PERMISSIONS;
export type Permission = (typeof PERMISSIONS)[Role][number];

/** Whether one of the person's roles grants the permission. Unknown roles grant nothing. */
export function may(session: Session, permission: Permission): boolean {
  return session.roles.some((role) =>
    (PERMISSIONS[role as Role] as readonly Permission[] | undefined)?.includes(permission),
  );
}
