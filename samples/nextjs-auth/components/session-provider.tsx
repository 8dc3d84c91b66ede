"use client";

import { createContext, type ReactNode, useContext } from "react";

export interface User {
  name: string;
  email: string;
  roles: string[];
}

const Context = createContext<User | null>(null);

export function SessionProvider({ user, children }: { user: User | null; children: ReactNode }) {
  return <Context.Provider value={user}>{children}</Context.Provider>;
}

/** The signed-in person, for what is shown. Rights are checked on the server. */
export function useUser(): User | null {
  return useContext(Context);
}
