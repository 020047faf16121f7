import type { PageRun, RunDetails } from "./page_rows";

/** A run of the page: its row, with its details if the page has them, and its place among the rows. */
export type ShownRun = PageRun & Partial<RunDetails> & { row: number; activity?: object };
