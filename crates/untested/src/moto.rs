//! moto's server, a second opinion on AWS's services.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::needs;

/// Starts the server on a free port.
const BEGIN: &str = "\
import logging, os, sys, time, boto3
logging.getLogger('werkzeug').setLevel(logging.ERROR)
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
address = 'http://%s:%d' % server.get_host_and_port()
def client(name, region='eu-west-1'):
    return boto3.client(name, endpoint_url=address, region_name=region, aws_access_key_id='a', aws_secret_access_key='b')
";

const LISTENS: &str = "\nprint('listens at', address, flush=True)\n";

/// A server, which ends when it is dropped.
pub struct Moto {
    child: Child,
    /// Its standard input.
    pub input: ChildStdin,
    /// The lines that it prints after its address.
    pub lines: Lines<BufReader<ChildStdout>>,
    /// `http://HOST:PORT`.
    pub address: String,
}

impl Moto {
    /// Starts a server and waits until it listens. `before` is Python that runs before it says so, `client(NAME)` and
    /// `client(NAME, REGION)` being its clients, and `then` what it does from then on, to the end of its standard input.
    /// None, with the reason noted, without moto.
    ///
    /// # Panics
    /// The server does not start.
    #[track_caller]
    pub fn start(before: &str, then: &str) -> Option<Self> {
        let python = needs::named("STOKEHOLD_TEST_MOTO", "a Python with moto[server]")?;
        let mut child = Command::new(python)
            .args(["-c", &[BEGIN, before, LISTENS, then].concat()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the Python runs");
        let input = child.stdin.take().expect("a pipe");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| Some(line.strip_prefix("listens at ")?.to_owned()));
        Some(Self {
            child,
            input,
            lines,
            address: address.expect("moto says where it listens"),
        })
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
