/** Migrations or grants cannot run, or have failed. The message says why, what was changed, and what to do. */
export class MigrationError extends Error {
  override readonly name = 'MigrationError'
}
