import { readFile } from 'node:fs/promises'
import t from 'tap'

t.test('the image and the Kubernetes manifests have the version of package.json', async (t) => {
  const { version } = JSON.parse(await readFile('package.json', 'utf8'))
  t.match(await readFile('Dockerfile', 'utf8'), `org.opencontainers.image.version="${version}"`)
  for (const folder of ['ops/kubernetes', 'ops/kubernetes/migrate']) {
    t.match(await readFile(`${folder}/kustomization.yaml`, 'utf8'), `newTag: ${version}\n`)
  }
})
