/** Fills the ids into a path of the contract. */
export function fillPath(path: string, values: object = {}): string {
  const given = values as Record<string, unknown>;
  return path.replace(/\{([^}]+)\}/g, (_, name: string) => {
    const value = given[name];
    if (value === undefined || value === null) throw new TypeError(`${path} needs params.path.${name}`);
    return encodeURIComponent(String(value));
  });
}

/** Writes a query. Values that are undefined are left out, and those of a list repeat their name. */
export function queryString(values: object = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) query.append(name, String(one));
    }
  }
  const text = query.toString();
  return text && "?" + text;
}
