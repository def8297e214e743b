//! `https` upstreams, and what is said of those that cannot be trusted.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use waypost_hub::error::Kind;
use waypost_upstream::parts::Tls;

use crate::kit::{complete, failure, parts, tool, upstream_with};

const KEY: &[u8] = include_bytes!("tls/key.pem");
/// For `localhost`, signed by itself.
const LOCALHOST: &[u8] = include_bytes!("tls/localhost.pem");
const EXPIRED: &[u8] = include_bytes!("tls/expired.pem");

fn certificate(pem: &[u8]) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem).unwrap()
}

/// A server with this certificate that answers its first request; its port.
fn serve(pem: &[u8]) -> u16 {
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate(pem)], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let connection = ServerConnection::new(config).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let mut request = Vec::new();
        let mut chunk = [0; 4096];
        // The body of these requests ends with two braces.
        while !request.ends_with(b"}}") {
            match stream.read(&mut chunk) {
                Ok(read @ 1..) => request.extend_from_slice(&chunk[..read]),
                // The client has turned away.
                _ => return,
            }
        }
        let body = r#"{"jsonrpc":"2.0","id":1,"result":{"tls":true}}"#;
        let answer = crate::fake::http("200 OK", "application/json", body);
        drop(stream.write_all(answer.as_bytes()));
    });
    port
}

/// Settings that trust this certificate alone.
fn trusting(pem: Option<&[u8]>) -> Tls {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = pem {
        roots.add(certificate(pem)).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Tls::with_config(config)
}

async fn refused(host: &str, port: u16, trusted: Option<&[u8]>) -> String {
    let mut parts = parts();
    parts.tls = trusting(trusted);
    let upstream = upstream_with(
        &format!("era: modern, url: 'https://{host}:{port}/mcp'"),
        &parts,
    );
    let error = failure(&*upstream).await;
    assert_eq!((error.kind, error.retryable), (Kind::Unavailable, true));
    error.detail.unwrap().into_owned()
}

#[tokio::test]
async fn a_trusted_certificate_is_trusted() {
    let mut parts = parts();
    parts.tls = trusting(Some(LOCALHOST));
    let port = serve(LOCALHOST);
    let upstream = upstream_with(
        &format!("era: modern, url: 'https://localhost:{port}/mcp'"),
        &parts,
    );
    assert!(complete(&*upstream, tool("t")).await.contains("tls"));
}

#[tokio::test]
async fn r41_the_error_says_what_is_wrong_with_the_certificate() {
    let text = refused("localhost", serve(LOCALHOST), None).await;
    assert_eq!(
        text,
        "certificate: signed by an authority that is not trusted here"
    );
    let text = refused("localhost", serve(EXPIRED), Some(EXPIRED)).await;
    assert_eq!(text, "certificate: expired");
    let text = refused("127.0.0.1", serve(LOCALHOST), Some(LOCALHOST)).await;
    assert_eq!(text, "certificate: made for another host name");
}

#[tokio::test]
async fn r41_a_server_without_tls_is_called_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = [0; 1];
        stream.read_exact(&mut hello).unwrap();
        drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        // Until the client has read it and gone; closing first would reset the connection.
        drop(stream.read_to_end(&mut Vec::new()));
    });
    let text = refused("localhost", port, Some(LOCALHOST)).await;
    assert_eq!(text, "the server does not speak TLS");
}
