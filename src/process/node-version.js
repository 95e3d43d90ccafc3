// @ts-check

/**
 * Ends the process with one sentence if its Node is too old. Those versions cannot load the other modules: an import that they do
 * not have is a syntax error. So this is plain JavaScript without imports, which scripts/build.js can also run before it compiles.
 *
 * @returns {void}
 */
export function requireSupportedNode() {
  const { node } = process.versions
  const [major = 0, minor = 0, patch = 0] = node.split('.').map(Number)
  // As `engines` in package.json.
  const isSupported =
    major > 22 ||
    (major === 22 && minor >= 12) ||
    (major === 20 && (minor > 19 || (minor === 19 && patch >= 2)))
  if (isSupported) return
  console.error(
    `Node ${node} is too old for the Petstore inventory service; it needs 20.19.2, 22.12 or newer.`,
  )
  process.exit(1)
}
