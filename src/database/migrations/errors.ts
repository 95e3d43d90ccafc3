/** Migrations or grants cannot run, or have failed. Nothing was changed. The message says why and what to do. */
export class MigrationError extends Error {
  override readonly name = 'MigrationError'
}
