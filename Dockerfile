# The architecture does not matter in the first two stages: production has no native modules.
FROM --platform=$BUILDPLATFORM node:24-alpine AS build
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --omit=optional
COPY tsconfig.json tsconfig.build.json ./
COPY src src
COPY migrations migrations
COPY reference reference
# Files from a checkout with a strict umask would be readable only by root.
RUN npm run build && rm dist/.tsbuildinfo \
 && chmod -R u=rwX,go=rX package.json migrations reference dist && chmod +x dist/cli.js

FROM --platform=$BUILDPLATFORM node:24-alpine AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --omit=dev --omit=optional

FROM node:24-alpine
LABEL org.opencontainers.image.title="petstore-inventory" \
      org.opencontainers.image.version="5.0.0" \
      org.opencontainers.image.description="Stock levels of a pet store over HTTP: Fastify and PostgreSQL" \
      org.opencontainers.image.licenses="MIT"
# Remove the package managers: nothing runs them, and they cause most of what scanners find in the base image.
RUN cd /usr/local/bin && rm -rf npm npx corepack yarn yarnpkg ../lib/node_modules /opt/yarn* \
 && ln -s /app/dist/cli.js inventory
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
COPY --from=build /app/package.json package.json
COPY --from=build /app/migrations migrations
COPY --from=build /app/reference reference
COPY --from=build /app/dist dist
ENV NODE_ENV=production HOST=0.0.0.0 PORT=3000
EXPOSE 3000
# A numeric id, because Kubernetes' runAsNonRoot cannot verify a name.
USER 1000:1000
# Checks readiness, for `up --wait` and proxies. Docker and compose do not restart an unhealthy container. Swarm does, and a
# restart does not fix a database, so there override this health check with /livez. On a busy machine, another process of Node.js
# takes longer than the timeout, and a start can take a minute.
HEALTHCHECK --interval=5s --timeout=10s --start-period=1m --retries=6 \
  CMD http_proxy= wget -q -O - "http://127.0.0.1:${PORT:-3000}/readyz"
CMD ["node", "--enable-source-maps", "dist/server.js"]
