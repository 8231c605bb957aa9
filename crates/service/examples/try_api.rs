//! A service in memory at 127.0.0.1, for tries with real clients: prints what they need. Arguments: port.

use std::error::Error;
use std::sync::Arc;

use tokio::sync::watch;
use whimbrel_engine::dispatch::Server;
use whimbrel_service::clock::SystemClock;
use whimbrel_service::store::Store;
use whimbrel_service::{Config, Service};
use whimbrel_web::{Limits, Listen, Security};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args().nth(1).map_or(Ok(0), |port| port.parse())?;
    let listen =
        Listen { address: ([127, 0, 0, 1], port).into(), security: Security::Loopback, limits: Limits::default() };
    let server = whimbrel_web::Server::bind(listen).await?;
    let config = Config { url: format!("http://{}", server.address()), domain: "example.org".to_owned() };
    let service = Arc::new(Service::new(config, Arc::new(SystemClock), Store::open("sqlite::memory:").await?));
    let admin = service.bootstrap_client("try", true).await?;
    service.bootstrap_person("ada@example.org", "s3cret", false).await?;
    let servers = vec![Server::at("whimbrel://127.0.0.1:2811", None)];
    let endpoint = service.add_endpoint(admin.client.id, "Try", servers).await?;
    let mapped = service.add_mapped(endpoint.id, admin.client.id, "Try files", "/").await?;
    println!("export GLOBUS_SDK_ENVIRONMENT=mylab GLOBUS_CLI_CLIENT_ID={}", admin.client.id);
    println!("export GLOBUS_CLI_CLIENT_SECRET={}", admin.secret.unwrap_or_default());
    for name in ["AUTH", "TRANSFER", "TIMER", "GROUPS", "FLOWS", "SEARCH"] {
        println!("export GLOBUS_SDK_SERVICE_URL_{name}={}/", service.config.url);
    }
    println!("export ENDPOINT={} MAPPED={}", endpoint.id, mapped.id);
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(server.serve(service.router(), stopped));
    tokio::signal::ctrl_c().await?;
    stop.send_replace(true);
    Ok(serving.await?)
}
