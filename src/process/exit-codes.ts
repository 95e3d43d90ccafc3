/** What the exit code of the command line tells a script. None is ever given another meaning. */
export const exitCodes = {
  done: 0,
  failed: 1,
  wrongUsage: 2,
  refused: 3,
  outcomeUnknown: 4,
  unconfirmed: 5,
  doneWithoutOutput: 6,
  low: 7,
  outputClosed: 141,
} as const

/** The same for the help text. */
export const exitCodeHelp = `
Exit codes:
  0    done
  1    failed; nothing was changed
  2    the command was not understood; nothing was done
  3    import: the file has faults or is not whole; nothing was changed
       status: the schema is behind this version, or the server's role lacks
       a privilege
       migrate status: a migration is pending, changed or out of order
  4    the connection was lost during the commit, and PostgreSQL cannot say
       whether the change was made
  5    nothing was changed: it takes a confirmation, which the message names
  6    done, but standard output could not be written
  7    low: there are entries below the limit
  130  interrupted by Ctrl-C, 143 by SIGTERM; nothing was changed
  141  the reader of the output went away`
