import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { parse } from 'yaml'

const folder = '.github/workflows'

interface Workflow {
  readonly on: { readonly schedule?: readonly { readonly cron: string }[] }
  readonly jobs: Record<
    string,
    { readonly steps: readonly { readonly uses?: string; readonly run?: string }[] }
  >
}

const workflows: { file: string; text: string; workflow: Workflow }[] = []
for (const file of await readdir(folder)) {
  const text = await readFile(path.join(folder, file), 'utf8')
  workflows.push({ file, text, workflow: parse(text) })
}

t.test('every action is pinned to a commit, and each has the same commit everywhere', async (t) => {
  const commits = new Map<string, string>()
  for (const { file, text } of workflows) {
    for (const [, used = ''] of text.matchAll(/\buses: (.+)$/gm)) {
      const [, action = '', commit = ''] = /^(\S+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+$/.exec(used) ?? []
      t.not(commit, '', `${file}: ${used}`)
      t.equal(commits.get(action) ?? commit, commit, `${file}: ${used}`)
      commits.set(action, commit)
    }
  }
  t.ok(commits.size > 0)
})

t.test('the tests that need other programs, and those in a browser, run every night', async (t) => {
  const nightly = workflows.filter(({ workflow }) =>
    workflow.on.schedule?.some(({ cron }) => /^\d+ \d+ \* \* \*$/.test(cron)),
  )
  const commands = nightly.flatMap(({ workflow }) =>
    Object.values(workflow.jobs).flatMap(({ steps }) => steps.map(({ run }) => run)),
  )
  for (const command of ['npm run test:faults', 'npm run test:browser'])
    t.ok(commands.includes(command), command)
})
