import { readFile } from 'node:fs/promises'
import t from 'tap'

t.test('the image has the version of package.json', async (t) => {
  const { version } = JSON.parse(await readFile('package.json', 'utf8'))
  t.match(await readFile('Dockerfile', 'utf8'), `org.opencontainers.image.version="${version}"`)
})

t.test('.nvmrc names the version of Node in the image', async (t) => {
  const version = (await readFile('.nvmrc', 'utf8')).trim()
  const images = [...(await readFile('Dockerfile', 'utf8')).matchAll(/^FROM (\S+)/gm)].map(
    ([, image]) => image,
  )
  t.strictSame(new Set(images), new Set([`node:${version}-alpine`]))
})
