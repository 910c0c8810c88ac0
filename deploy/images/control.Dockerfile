# The control plane. Build from the project's root: docker build -f deploy/images/control.Dockerfile .
FROM python:3.12-slim

RUN useradd --create-home --uid 10001 elastane
WORKDIR /opt/elastane
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY service service
COPY workers workers
COPY api api
COPY migrations migrations
RUN python -m pip install --no-cache-dir -c constraints.txt ".[postgres]"

# A new volume takes owner and mode of what the image has in its place.
RUN install -d -o elastane -g elastane /checkpoints /home/elastane/data
USER elastane
ENV ELASTANE_HOME=/home/elastane/data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
ENTRYPOINT ["elastane"]
CMD ["serve", "--host", "0.0.0.0"]
