//! Sets the quantity of one pet and polls the list. Needs Rust 1.85 or newer, and the crates in Cargo.toml.
//!
//!     INVENTORY_URL=https://…/v1 INVENTORY_KEY=… cargo run -- PET_ID QUANTITY
//!
//! QUANTITY is the new quantity, such as 5, or a change, such as +5 or -5.

use std::time::{Duration, SystemTime};
use std::{env, fmt, process, thread};

use serde::de::DeserializeOwned;
use serde::Deserialize;
use ureq::http::{header, Request, Response, StatusCode};

const MAX_TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Statuses of the service, or of a proxy in front of it, after which a retry may succeed.
const RETRIED_STATUSES: [u16; 4] = [429, 502, 503, 504];

/// One entry. An i64 holds every petId exactly.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    pet_id: i64,
    quantity: i32,
    status: String,
}

impl Item {
    /// The entity tag of the entry, for If-Match.
    fn tag(&self) -> String {
        format!("\"{}-{}\"", self.quantity, self.status)
    }
}

/// The body of every response with a status of 400 or more.
#[derive(Deserialize)]
struct ErrorBody {
    code: String,
    message: String,
}

enum Error {
    /// An error of the service; branch on the code.
    Refused(ErrorBody),
    /// A response that is not from the service, such as the HTML page of a proxy.
    Unexpected(String),
    /// No response to any of the attempts.
    Unreachable(String),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(ErrorBody { code, message }) => write!(out, "{code}: {message}"),
            Error::Unexpected(response) => write!(out, "The response ({response}) is not from the inventory service"),
            Error::Unreachable(reason) => write!(out, "No response: {reason}"),
        }
    }
}

/// A client of the service. Its agent reuses connections.
struct Inventory {
    base: String,
    key: String,
    agent: ureq::Agent,
}

impl Inventory {
    fn new(base: String, key: String, timeout: Duration) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .build();
        Inventory { base, key, agent: config.into() }
    }

    /// The list and its entity tag; no list if it still has the tag `etag`.
    fn list(&self, etag: Option<&str>) -> Result<(Option<Vec<Item>>, String), Error> {
        let headers: Vec<_> = etag.map(|etag| ("If-None-Match", etag)).into_iter().collect();
        let response = self.send("GET", "/inventory", &headers, String::new(), MAX_TRIES)?;
        let etag = header_of(&response, header::ETAG).to_owned();
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok((None, etag));
        }
        Ok((Some(read(&response)?), etag))
    }

    /// Sets the quantity and returns the entry. A retry is safe if you are the only writer of the entry.
    ///
    /// With a tag, the entry is set only if it has that tag, and the request is not retried: a tag says what an entry is,
    /// not who made it so, and a retry could not tell its own first attempt from another writer.
    fn update(&self, pet_id: i64, quantity: i32, tag: Option<&str>) -> Result<Item, Error> {
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(tag.map(|tag| ("If-Match", tag)));
        let tries = if tag.is_some() { 1 } else { MAX_TRIES };
        let body = serde_json::json!({ "quantity": quantity }).to_string();
        read(&self.send("PATCH", &format!("/inventory/{pet_id}"), &headers, body, tries)?)
    }

    /// Adds to the quantity by compare and set, and returns the entry: no other writer's update is lost.
    fn add(&self, pet_id: i64, difference: i32) -> Result<Item, Error> {
        loop {
            let items = self.list(None)?.0.unwrap_or_default();
            let Some(item) = items.iter().find(|item| item.pet_id == pet_id) else {
                let message = format!("No inventory entry exists for petId {pet_id}.");
                return Err(Error::Refused(ErrorBody { code: "not_found".to_owned(), message }));
            };
            match self.update(pet_id, item.quantity.saturating_add(difference), Some(&item.tag())) {
                Err(Error::Refused(ErrorBody { code, .. })) if code == "precondition_failed" => continue,
                result => return result,
            }
        }
    }

    /// Sends a request, and retries it after a timeout, a lost connection or one of the statuses above.
    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
        tries: u32,
    ) -> Result<Response<String>, Error> {
        for tried in 1.. {
            // Jitter, so that clients that failed together do not retry together.
            let mut pause = FIRST_PAUSE.mul_f64(fastrand::f64() * f64::from(1 << (tried - 1)));
            match self.attempt(method, path, headers, body.clone()) {
                Ok(response) if matches!(response.status().as_u16(), 200 | 304) => return Ok(response),
                Ok(response) => {
                    let wait = retry_after(&response);
                    let is_retried = RETRIED_STATUSES.contains(&response.status().as_u16()) && wait <= MAX_PAUSE;
                    if !is_retried || tried >= tries {
                        return Err(read(&response).map_or_else(|error| error, Error::Refused));
                    }
                    pause += wait;
                }
                Err(reason) if tried >= tries => return Err(Error::Unreachable(reason.to_string())),
                Err(_) => {}
            }
            thread::sleep(pause);
        }
        unreachable!("the last try returns")
    }

    fn attempt(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<Response<String>, ureq::Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.key));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = if method == "GET" {
            self.agent.run(request.body(())?)?
        } else {
            self.agent.run(request.body(body)?)?
        };
        let (parts, mut content) = response.into_parts();
        // No limit, because a list can have any length.
        let text = content.with_config().limit(u64::MAX).read_to_string()?;
        Ok(Response::from_parts(parts, text))
    }
}

/// Reads the JSON of a response; it may come from a proxy, in HTML.
fn read<T: DeserializeOwned>(response: &Response<String>) -> Result<T, Error> {
    serde_json::from_str(response.body()).map_err(|_| {
        let kind = header_of(response, header::CONTENT_TYPE);
        Error::Unexpected(format!("{}, {kind}", response.status()))
    })
}

fn header_of(response: &Response<String>, name: header::HeaderName) -> &str {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// How long the server asks to wait. The header has seconds or a date.
fn retry_after(response: &Response<String>) -> Duration {
    let value = header_of(response, header::RETRY_AFTER);
    match (value.parse(), httpdate::parse_http_date(value)) {
        (Ok(seconds), _) => Duration::from_secs(seconds),
        (_, Ok(date)) => date.duration_since(SystemTime::now()).unwrap_or_default(),
        _ => Duration::ZERO,
    }
}

fn show(item: &Item) {
    println!("{}: {} {}", item.pet_id, item.quantity, item.status);
}

fn run(inventory: &Inventory, pet_id: i64, quantity: i32, is_change: bool) -> Result<(), Error> {
    let (items, mut etag) = inventory.list(None)?;
    items.iter().flatten().for_each(show);
    show(&if is_change { inventory.add(pet_id, quantity)? } else { inventory.update(pet_id, quantity, None)? });
    for _ in 0..2 {
        let (items, newer) = inventory.list(Some(&etag))?;
        println!("{}", if items.is_none() { "unchanged" } else { "changed" });
        etag = newer;
    }
    Ok(())
}

fn setting(name: &str, fallback: &str) -> String {
    env::var(name).unwrap_or_else(|_| fallback.to_owned())
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [pet_id, quantity] = arguments.as_slice() else { usage() };
    let (Ok(pet), Ok(count)) = (pet_id.parse(), quantity.parse()) else { usage() };
    let Ok(timeout_seconds) = setting("INVENTORY_TIMEOUT_SECONDS", "10").parse() else { usage() };
    let inventory = Inventory::new(
        setting("INVENTORY_URL", "http://127.0.0.1:3000/v1"),
        setting("INVENTORY_KEY", ""),
        Duration::from_secs(timeout_seconds),
    );
    if let Err(error) = run(&inventory, pet, count, quantity.starts_with(['+', '-'])) {
        eprintln!("{error}");
        process::exit(1);
    }
}

fn usage() -> ! {
    eprintln!("usage: inventory PET_ID QUANTITY");
    process::exit(2);
}
