import { eventually } from './eventually.ts'
import type { OwnServer } from './own-server.ts'

/** Has commits wait for a standby of that name, or for none if it is empty. */
export async function setSynchronousStandby({ query }: OwnServer, name: string): Promise<void> {
  await query(`ALTER SYSTEM SET synchronous_standby_names = '${name}'`)
  await query('SELECT pg_reload_conf()')
  await eventually('the setting to be read', async () => {
    const [row] = await query('SHOW synchronous_standby_names')
    return row?.['synchronous_standby_names'] === name
  })
  // It is the checkpointer that has commits wait, once it has read the setting, which it does before a checkpoint.
  await query('CHECKPOINT')
}
