// Sets the quantity of one pet and polls the list. Needs Java 17 or newer and nothing else.
//
//   INVENTORY_URL=https://…/v1 INVENTORY_KEY=… java Inventory.java PET_ID QUANTITY
//
// QUANTITY is the new quantity, such as 5, or a change, such as +5 or -5.

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeParseException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A client of the service. It reuses connections, and is safe for use by many threads. */
public final class Inventory {
    private static final int MAX_TRIES = 5;
    private static final Duration FIRST_PAUSE = Duration.ofMillis(250);
    private static final Duration MAX_PAUSE = Duration.ofMinutes(1);

    /** Statuses of the service, or of a proxy in front of it, after which a retry may succeed. */
    private static final Set<Integer> RETRIED_STATUSES = Set.of(429, 502, 503, 504);

    /** One entry. A long holds every petId exactly. */
    record Item(long petId, int quantity, String status) {
        /** The entity tag of the entry, for If-Match. */
        String tag() {
            return "\"" + quantity + "-" + status + "\"";
        }
    }

    /** A list with its entity tag; without items if the list still has that tag. */
    record Listing(Optional<List<Item>> items, String etag) {}

    /**
     * An unexpected response. Branch on the code; it is empty if the response is not from the service. A 412 of an
     * update has the tag of the entry.
     */
    static final class InventoryException extends IOException {
        private static final long serialVersionUID = 1;
        final int status;
        final String code;
        final String tag;

        InventoryException(int status, String code, String message, String tag) {
            super(code.isEmpty() ? message : code + ": " + message);
            this.status = status;
            this.code = code;
            this.tag = tag;
        }
    }

    private final String base;
    private final String key;
    private final Duration timeout;
    private final HttpClient client;

    Inventory(String base, String key, Duration timeout) {
        this.base = base;
        this.key = key;
        this.timeout = timeout;
        this.client = HttpClient.newBuilder().connectTimeout(timeout).build();
    }

    /** The list, or only its tag if it still has the tag `etag`, which may be empty. */
    Listing list(String etag) throws IOException, InterruptedException {
        var response = send("GET", "/inventory", etag.isEmpty() ? Map.of() : Map.of("If-None-Match", etag), "", MAX_TRIES);
        if (response.statusCode() == 304) return new Listing(Optional.empty(), etag);
        return new Listing(Optional.of(readItems(response)), response.headers().firstValue("ETag").orElse(""));
    }

    /** Sets the quantity and returns the entry. A retry is safe if you are the only writer of the entry. */
    Item update(long petId, int quantity) throws IOException, InterruptedException {
        return update(petId, quantity, Map.of("Content-Type", "application/json"), MAX_TRIES);
    }

    /**
     * Sets the quantity of an entry if it has the tag. It is not retried: a tag says what an entry is, not who made
     * it so, and a retry could not tell its own first attempt from another writer.
     */
    Item updateIf(long petId, int quantity, String tag) throws IOException, InterruptedException {
        return update(petId, quantity, Map.of("Content-Type", "application/json", "If-Match", tag), 1);
    }

    /**
     * Adds to the quantity by compare and set, and returns the entry: no other writer's update is lost.
     */
    Item add(long petId, int difference) throws IOException, InterruptedException {
        var item = list("").items().orElseThrow().stream().filter(found -> found.petId() == petId).findAny();
        if (item.isEmpty()) {
            throw new InventoryException(404, "not_found", "No inventory entry exists for petId " + petId + ".", "");
        }
        int quantity = item.get().quantity();
        var tag = item.get().tag();
        while (true) {
            try {
                return updateIf(petId, quantity + difference, tag);
            } catch (InventoryException error) {
                var current = TAG.matcher(error.tag);
                if (!error.code.equals("precondition_failed") || !current.find()) throw error;
                quantity = Integer.parseInt(current.group(1));
                tag = current.group();
            }
        }
    }

    private Item update(long petId, int quantity, Map<String, String> headers, int tries)
            throws IOException, InterruptedException {
        var response = send("PATCH", "/inventory/" + petId, headers, "{\"quantity\":" + quantity + "}", tries);
        var items = readItems(response);
        if (items.size() != 1) throw unexpected(response);
        return items.get(0);
    }

    /** Sends a request, and retries it after a timeout, a lost connection or one of the statuses above. */
    private HttpResponse<String> send(String method, String path, Map<String, String> headers, String body, int tries)
            throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(URI.create(base + path))
                .method(method, body.isEmpty() ? BodyPublishers.noBody() : BodyPublishers.ofString(body))
                .header("Authorization", "Bearer " + key);
        headers.forEach(request::header);
        for (int tried = 1; ; tried++) {
            // Jitter, so that clients that failed together do not retry together.
            var pause = FIRST_PAUSE.multipliedBy(1L << (tried - 1)).toMillis();
            pause = ThreadLocalRandom.current().nextLong(pause);
            try {
                var response = attempt(request.build());
                if (response.statusCode() == 200 || response.statusCode() == 304) return response;
                var wait = retryAfterMillis(response);
                boolean isRetried = RETRIED_STATUSES.contains(response.statusCode()) && wait <= MAX_PAUSE.toMillis();
                if (!isRetried || tried >= tries) throw errorOf(response);
                pause += wait;
            } catch (InventoryException error) {
                throw error;
            } catch (IOException error) {
                if (tried >= tries) {
                    var reason = error.getMessage() == null ? error.getClass().getSimpleName() : error.getMessage();
                    var outcome = method.equals("GET") ? "" : ". It may have been applied";
                    throw new IOException("No response to " + method + " " + path + ": " + reason + outcome, error);
                }
            }
            Thread.sleep(pause);
        }
    }

    /** Limits the time of the whole response: HttpRequest.timeout ends with the headers. */
    private HttpResponse<String> attempt(HttpRequest request) throws IOException, InterruptedException {
        var response = client.sendAsync(request, BodyHandlers.ofString());
        try {
            return response.get(timeout.toMillis(), TimeUnit.MILLISECONDS);
        } catch (TimeoutException error) {
            response.cancel(true);
            throw new IOException("timed out", error);
        } catch (ExecutionException error) {
            if (error.getCause() instanceof IOException cause) throw cause;
            throw new IOException(error.getCause());
        }
    }

    private static final Pattern TAG = Pattern.compile("\"([0-9]+)-[a-z]+\"");
    private static final Pattern OBJECT = Pattern.compile("\\{[^{}]*}");
    private static final Pattern PET_ID = Pattern.compile("\"petId\"\\s*:\\s*(-?[0-9]+)\\s*[,}]");
    private static final Pattern QUANTITY = Pattern.compile("\"quantity\"\\s*:\\s*([0-9]+)\\s*[,}]");
    private static final Pattern STATUS = Pattern.compile("\"status\"\\s*:\\s*\"([^\"\\\\]*)\"");
    private static final Pattern CODE = Pattern.compile("\"code\"\\s*:\\s*\"([^\"\\\\]*)\"");
    private static final Pattern MESSAGE = Pattern.compile("\"message\"\\s*:\\s*\"((?:[^\"\\\\]|\\\\.)*)\"");

    /**
     * Reads one entry or a list of them. Java has no JSON parser; entries are flat and their strings are plain words, so
     * patterns suffice. With Jackson or Gson, declare petId as a long.
     */
    private static List<Item> readItems(HttpResponse<String> response) throws InventoryException {
        if (!isJson(response)) throw unexpected(response);
        var items = new ArrayList<Item>();
        var objects = OBJECT.matcher(response.body());
        while (objects.find()) {
            var petId = member(PET_ID, objects.group());
            var quantity = member(QUANTITY, objects.group());
            var status = member(STATUS, objects.group());
            if (petId.isEmpty() || quantity.isEmpty() || status.isEmpty()) throw unexpected(response);
            items.add(new Item(Long.parseLong(petId), Integer.parseInt(quantity), status));
        }
        return items;
    }

    /** The error in a response; it may come from a proxy, in HTML. */
    private static InventoryException errorOf(HttpResponse<String> response) {
        var code = member(CODE, response.body());
        if (!isJson(response) || code.isEmpty()) return unexpected(response);
        var tag = response.headers().firstValue("ETag").orElse("");
        return new InventoryException(response.statusCode(), code, member(MESSAGE, response.body()), tag);
    }

    private static InventoryException unexpected(HttpResponse<String> response) {
        var type = response.headers().firstValue("Content-Type").orElse("no content type");
        var message = "The response (" + response.statusCode() + ", " + type + ") is not from the inventory service";
        return new InventoryException(response.statusCode(), "", message, "");
    }

    private static boolean isJson(HttpResponse<String> response) {
        return response.headers().firstValue("Content-Type").orElse("").startsWith("application/json");
    }

    private static String member(Pattern pattern, String json) {
        Matcher matcher = pattern.matcher(json);
        return matcher.find() ? matcher.group(1) : "";
    }

    /** How long the server asks to wait. The header has seconds or a date. */
    private static long retryAfterMillis(HttpResponse<String> response) {
        var value = response.headers().firstValue("Retry-After").orElse("").trim();
        if (value.matches("[0-9]{1,9}")) return Long.parseLong(value) * 1000;
        try {
            var date = ZonedDateTime.parse(value, DateTimeFormatter.RFC_1123_DATE_TIME);
            return Math.max(0, Duration.between(ZonedDateTime.now(), date).toMillis());
        } catch (DateTimeParseException error) {
            return 0;
        }
    }

    private static String setting(String name, String fallback) {
        return Optional.ofNullable(System.getenv(name)).orElse(fallback);
    }

    private static void show(Item item) {
        System.out.println(item.petId() + ": " + item.quantity() + " " + item.status());
    }

    public static void main(String[] arguments) throws InterruptedException {
        if (!String.join(" ", arguments).matches("-?[0-9]+ [+-]?[0-9]+")) {
            System.err.println("usage: java Inventory.java PET_ID QUANTITY");
            System.exit(2);
        }
        var inventory = new Inventory(
                setting("INVENTORY_URL", "http://127.0.0.1:3000/v1"),
                setting("INVENTORY_KEY", ""),
                Duration.ofSeconds(Long.parseLong(setting("INVENTORY_TIMEOUT_SECONDS", "10"))));
        try {
            long petId = Long.parseLong(arguments[0]);
            int quantity = Integer.parseInt(arguments[1]);
            var listing = inventory.list("");
            listing.items().orElseThrow().forEach(Inventory::show);
            boolean isChange = arguments[1].matches("[+-].*");
            show(isChange ? inventory.add(petId, quantity) : inventory.update(petId, quantity));
            for (int round = 0; round < 2; round++) {
                listing = inventory.list(listing.etag());
                System.out.println(listing.items().isEmpty() ? "unchanged" : "changed");
            }
        } catch (IOException | NumberFormatException error) {
            System.err.println(error.getMessage());
            System.exit(1);
        }
    }
}
