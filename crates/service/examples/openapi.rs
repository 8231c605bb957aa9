//! Prints the OpenAPI file (`docs/reference/openapi.json`).

fn main() {
    let document = whimbrel_service::http::openapi::document(&whimbrel_service::Service::routes());
    println!("{}", serde_json::to_string_pretty(&document).expect("a value can always be written"));
}
