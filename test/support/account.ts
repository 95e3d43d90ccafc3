import { chown } from 'node:fs/promises'
import { type Account, serverAccount } from '../../src/local/server-process.ts'

export { serverAccount }

/** Gives a file or folder to the account that servers run as, if that is another one. */
export async function giveTo({ uid, gid }: Account, target: string): Promise<void> {
  if (uid !== undefined && gid !== undefined) await chown(target, uid, gid)
}
