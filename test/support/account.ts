import { chown } from 'node:fs/promises'
import { serverAccount } from '../../src/local/server-process.ts'

/** Gives a file or folder to the account that servers run as, if that is another one. */
export async function giveToServer(target: string): Promise<void> {
  const { uid, gid } = serverAccount()
  if (uid !== undefined && gid !== undefined) await chown(target, uid, gid)
}
