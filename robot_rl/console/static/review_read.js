// What the page reads from the server; the list is asked for before the rest of the page has loaded.

import { at } from "./socket.js";

export async function get(path) {
  const answer = await fetch(at(path)), data = await answer.json();
  if (!answer.ok) throw new Error(data.error ?? data.detail);
  return data;
}

export const first = Promise.all([get("/api/about"), get("/api/episodes")]);
first.catch(() => {}); // who waits for it says so
