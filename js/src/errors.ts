/** The kinds of errors; README.md says what to do about each. No message shows a value, a report or a secret. */
export type Code =
  | "Usage" // a call that makes no sense
  | "Unavailable" // storage, cryptography or network can't be used now
  | "NotReady" // the head list is not published yet
  | "UnknownValue" // not in the domain, and the task refuses those
  | "AnotherHeadList" // this period's report was made with another configuration
  | "TaskInvalid" // the task or its configuration is not what it should be
  | "ReportMalformed"
  | "ReportVersionUnknown"
  | "ReportOfAnotherTask"
  | "ReportOfAnotherConfiguration"
  | "ReportTimeInvalid"
  | "ReportOfAnotherPeriod"
  | "ReportOutOfDomain";

const NAME = "HushqueryError";

/** What this package throws; `code` says which kind. */
export class HushqueryError extends Error {
  constructor(
    readonly code: Code,
    why = "",
  ) {
    super(`${code}: ${why}`);
    this.name = NAME;
  }

  /** Parts of this package that are loaded later have a class of their own, which is the same. */
  static override [Symbol.hasInstance](error: unknown): boolean {
    return (error as Error | undefined)?.name === NAME;
  }
}

/** Throw unless something holds. */
export function must(holds: unknown, code: Code, why?: string): asserts holds {
  if (!holds) throw new HushqueryError(code, why);
}

/** Refuse a task. */
export function wants(holds: unknown, why: string): asserts holds {
  must(holds, "TaskInvalid", why);
}
