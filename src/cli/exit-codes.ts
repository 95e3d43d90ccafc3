/** Exit codes of the command line. Scripts rely on them, so none ever changes its meaning. */
export const exitCodes = {
  done: 0,
  failed: 1,
  wrongUsage: 2,
  refused: 3,
  outcomeUnknown: 4,
  unconfirmed: 5,
  outputClosed: 141,
} as const

/** The exit codes, for the help text. */
export const exitCodeHelp = `
Exit codes:
  0  done
  1  failed; 2 wrong usage. Nothing was changed, unless the message says what was
  3  import: the file has errors or is incomplete, or the database rejects its
     entries; status and migrate status: something is missing, as they show;
     history: it is off, so that changes are missing
  4  it is unknown whether the change was made; the message says how to find out
  5  nothing was changed: confirmation is required, as the message says
  130, 143, 129
     interrupted by Ctrl-C, SIGTERM or a closed terminal; nothing was changed,
     unless the message says what was
  141
     the output pipe was closed; what the command had changed before remains`
