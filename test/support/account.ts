import { chown } from 'node:fs/promises'
import { serverAccount } from '../../src/local/server-process.ts'

export { serverAccount }

/** Gives a file or folder to the account that servers run as, if that is another one. */
export async function giveTo(account: ReturnType<typeof serverAccount>, target: string): Promise<void> {
  const { uid, gid } = account
  if (uid !== undefined && gid !== undefined) await chown(target, uid, gid)
}
