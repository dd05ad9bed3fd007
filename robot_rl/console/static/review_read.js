// The list is asked for before the rest of the page has loaded.

import { get } from "./socket.js";

export const first = Promise.all([get("/api/about"), get("/api/episodes")]);
first.catch(() => {}); // who waits for it says so
