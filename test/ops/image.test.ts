import { readFile } from 'node:fs/promises'
import t from 'tap'

t.test('the label of the image has the version of package.json', async (t) => {
  const { version } = JSON.parse(await readFile('package.json', 'utf8'))
  t.match(await readFile('Dockerfile', 'utf8'), `org.opencontainers.image.version="${version}"`)
})
