/** A path of this site, or "/". Anything else would make the login an open redirect. */
export function localPath(given: string | null): string {
  if (!given || !given.startsWith("/") || given.startsWith("//") || given.includes("\\")) return "/";
  return given;
}
