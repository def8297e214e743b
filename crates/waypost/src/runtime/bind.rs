//! Listening sockets, one share per core.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Socket, TcpKeepalive, Type};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// After so long without a byte the system asks whether the peer is still there, and gives it up
/// after some more questions. Nobody else notices a client that has lost its network while it
/// waits for an answer.
const IDLE: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_secs(15);

/// A free port may be taken by somebody else between looking for it and taking it.
const ATTEMPTS: usize = 16;

/// How cores come by their connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// Each core has a listening socket of its own and the kernel deals connections out.
    Own,
    /// One socket; its acceptor deals connections out.
    Dealt,
}

impl Shares {
    /// Only Linux balances sockets that share a port.
    pub(crate) const fn natural() -> Self {
        if cfg!(target_os = "linux") {
            Self::Own
        } else {
            Self::Dealt
        }
    }
}

/// Listens on `address` with `count` sockets. Port 0 is any free one, the same for all.
pub(crate) fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..ATTEMPTS {
        match bind_once(address, count) {
            Err(error) if address.port() == 0 && error.kind() == io::ErrorKind::AddrInUse => {
                last = error;
            }
            other => return other,
        }
    }
    Err(last)
}

fn bind_once(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let alone = listener(address, false)?;
    if count == 1 {
        return Ok(vec![alone]);
    }
    // A shared port can be shared with strangers too: a second Waypost would silently get half of
    // the connections. Nobody else listens if this socket could be bound without sharing.
    let address = alone.local_addr()?;
    drop(alone);
    (0..count).map(|_| listener(address, true)).collect()
}

fn listener(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // Without it, connections of the process before this one block the port for a minute.
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    // Set here once: connections inherit it.
    let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(AGAIN);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }

    #[test]
    fn all_shares_have_one_port() {
        let sockets = bind(loopback(), 3).unwrap();
        let address = sockets[0].local_addr().unwrap();
        assert_ne!(address.port(), 0);
        let same = |socket: &TcpListener| socket.local_addr().unwrap() == address;
        assert!(sockets.len() == 3 && sockets.iter().all(same));
    }

    #[test]
    fn r74_the_system_looks_after_connections_that_are_silent() {
        let sockets = bind(loopback(), 1).unwrap();
        let _client = std::net::TcpStream::connect(sockets[0].local_addr().unwrap()).unwrap();
        sockets[0].set_nonblocking(false).unwrap();
        let (accepted, _) = sockets[0].accept().unwrap();
        assert!(socket2::SockRef::from(&accepted).keepalive().unwrap());
    }

    #[test]
    fn a_port_in_use_is_refused_also_where_it_is_shared() {
        for (first, second) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            let sockets = bind(loopback(), first).unwrap();
            let address = sockets[0].local_addr().unwrap();
            let error = bind(address, second).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{first} {second}");
        }
    }
}
